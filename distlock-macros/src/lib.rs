//! distlock-macros

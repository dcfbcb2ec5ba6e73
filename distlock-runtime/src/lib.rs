//! distlock-runtime

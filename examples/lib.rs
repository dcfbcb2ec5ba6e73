//! Examples of distlock; each file beside this folder is one.

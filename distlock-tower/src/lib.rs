//! distlock-tower

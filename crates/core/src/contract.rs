//! What every source must keep.

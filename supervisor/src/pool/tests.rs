//! The core's rules, one by one. The simulator in `tests/sim` holds them under random schedules.

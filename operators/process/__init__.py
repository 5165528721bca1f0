"""Process functions of users: state for each key, timers, and what a call emits."""

"""What the planner decides: pure."""

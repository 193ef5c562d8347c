"""Declares, reads back, executes, reports."""

"""What the gateway says, as pure functions.

It decides nothing about a job: whatever is said here follows from the request alone or from the log.
"""

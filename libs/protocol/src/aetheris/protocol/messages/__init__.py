"""What lies in the topics: events, commands, and their envelope."""

"""The aetheris command and the embedded runtime."""

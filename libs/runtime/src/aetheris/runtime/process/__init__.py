"""What a service's process stands on: settings, lifecycle, health."""

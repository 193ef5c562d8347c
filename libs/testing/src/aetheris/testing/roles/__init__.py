"""Who acts in a system in memory: each holds a service's real core and stands in for its edge."""

"""Who acts in a simulated run: each holds a real core and stands in for its edge."""

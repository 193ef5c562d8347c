"""Plans: the graph of nodes, forms, what a model is asked."""

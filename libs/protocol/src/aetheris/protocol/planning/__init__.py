"""What follows from the fold: calls, answers, requests to humans."""

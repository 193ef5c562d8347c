"""What decides: which lines count, what a range holds, what is written of a job."""

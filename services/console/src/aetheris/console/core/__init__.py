"""What decides: what a page shows, and what of a form is sent. Pure."""

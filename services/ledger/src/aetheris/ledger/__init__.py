"""Adjudicates who may run; owns leases, deadlines and the in-doubt ladder."""

"""HTTP API and SSE; decides nothing."""

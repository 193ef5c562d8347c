"""The HTTP edge: each route reads its request, asks one part, and says its answer (docs/http-api.md)."""

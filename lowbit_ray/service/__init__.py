"""The arena as its participants meet it: an HTTP service over the ledger."""

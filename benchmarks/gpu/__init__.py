"""The proof on GPUs: checkpoints made on the spot, evaluated by the product's own driver (README.md beside this)."""

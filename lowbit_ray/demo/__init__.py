"""The embedded default: a small real model, a candidate made of it, and one evaluation on this machine."""

"""Accuracy on the domains: items, scorers, paired results."""

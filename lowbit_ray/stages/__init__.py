"""The stages of one evaluation, in order: build → contract → efficiency → quality → score."""

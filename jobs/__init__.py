"""Entry points of `ray job submit`: thin, one call into the library each."""

"""A record as people read it: on a terminal, as a page, as a picture."""

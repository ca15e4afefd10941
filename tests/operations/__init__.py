"""HTTP for operators: health and metrics of a broker."""

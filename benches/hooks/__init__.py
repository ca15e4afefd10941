"""What plugin hooks cost: the numbers of issue 19, with their goals."""

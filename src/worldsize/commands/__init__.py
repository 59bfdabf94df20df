"""Commands of a person, run as they are: each with its keeper, its layer and its end."""

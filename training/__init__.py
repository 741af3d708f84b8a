"""How the zoo's models are trained: what a recipe names, and the command line `zoo`."""

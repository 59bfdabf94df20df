"""What is loaded in a program that is not ours: the standard library, and the torch that it finds there.

No module here imports worldsize, for the program may run in an environment that has none (commands/).
"""

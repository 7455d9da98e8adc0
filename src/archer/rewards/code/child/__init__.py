"""What runs inside the sandbox: standard library only, imported there as the package ``child``.

The modules import one another relatively, because inside the sandbox no other part of Archer exists.
"""

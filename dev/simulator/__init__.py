"""The whole platform in one process, on a virtual clock: deterministic by seed, judged by what the outside sees.

``core`` runs the product's threads on greenlets; ``world`` puts the product among models of what surrounds it;
``promises`` says what must hold. Nothing here may import product code before ``core.seam.install`` was called.
"""

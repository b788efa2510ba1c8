"""fitting: what the methods have in common: scikit-learn's face, moments, the two-stage solution, refining, feature maps."""

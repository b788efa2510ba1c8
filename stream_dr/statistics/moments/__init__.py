"""The additive state: weights, means, centred sums and cross sums of rows and targets."""

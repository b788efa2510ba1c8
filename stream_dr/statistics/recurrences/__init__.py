"""The sample-exact recurrences: CCIPCA and incremental SKM, row by row at the speed of matrices."""

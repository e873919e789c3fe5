"""Reports what plain git would run or reach."""

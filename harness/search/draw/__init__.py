"""The drawing of schedules for both worlds: scenarios, situations, dimensions, storms."""

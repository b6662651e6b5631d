"""Carries out the plan of a verdict, in this process or on Spark. Imports all other rooms; no other
room imports it or Spark."""

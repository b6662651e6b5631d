"""The engine: it carries out the plan of a verdict, in this process, on processes of this machine
or on Spark. Imports all other rooms; no other room imports it or Spark."""

"""Reserved addresses are released in their time, and those that never passed admission are reserved late."""

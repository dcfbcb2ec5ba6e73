-- The end of RELEASE where somebody may wait.
pcall(hand_on, KEYS[1], KEYS[2], KEYS[3])
return released

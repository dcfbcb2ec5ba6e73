-- Waiters keep their place for WINDOW ms after they asked. They ask at least every second: one that has been SILENT and
-- that nobody can tell anything is dead.
local WINDOW, SILENT = 5000, 1500

local function silent_from(live) return live - WINDOW + SILENT end

local function silent(live, now) return silent_from(live) <= now end

-- Whether somebody heard that it is this owner's turn. Without the right to publish, nobody did.
local function tell(channel, owner)
  if channel == '-' then return false end
  local heard = publish(channel, owner)
  return type(heard) == 'number' and heard > 0
end

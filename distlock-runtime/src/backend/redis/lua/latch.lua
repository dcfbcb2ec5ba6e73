-- KEYS[1] a hash: k 'latch', l the number that it counts from, c how many are left, w the channels of those who wait, separated by
-- blanks; and for each count-down its token, with how many it took.
-- ARGV[1] the number to count from, ARGV[2] for how long to remember it, in ms.

local function digits(number) return string.format('%.0f', number) end

-- How many are left, and the channels | nil: there is no such latch | nil and an error table.
local function look()
  local found = redis.pcall('hmget', KEYS[1], 'k', 'l', 'c', 'w')
  if found.err then return nil, found end
  if found[1] == 'latch' and found[2] == ARGV[1] then return tonumber(found[3]), nil, found[4] or '' end
  if found[1] == 'latch' then
    return nil, { err = 'LIMITMISMATCH the latch counts from ' .. found[2] .. ', not ' .. ARGV[1] }
  end
  if redis.call('exists', KEYS[1]) == 1 then
    return nil, { err = 'WRONGTYPE the key is in use by something else than a latch' }
  end
  return nil, nil, ''
end

local function remember()
  if redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then redis.call('pexpire', KEYS[1], ARGV[2]) end
end

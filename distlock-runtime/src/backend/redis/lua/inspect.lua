-- INSPECT
-- KEYS lock, tombstones, queue, waiters          Gives {value or nil, its remaining ms, live waiters}.
-- A late attempt of a cancelled acquisition doesn't count as a holder. A queue of more than 1000 is given by its
-- length, dead entries included.
local holder = redis.pcall('get', KEYS[1])
if type(holder) == 'table' then return holder end
if holder and redis.call('zscore', KEYS[2], string.sub(holder, 1, 32)) then holder = false end
local waiting = redis.call('zcard', KEYS[3])
if waiting > 0 and waiting <= 1000 then
  local now = now_ms()
  waiting = 0
  for _, entry in ipairs(redis.call('hvals', KEYS[4])) do
    local live = string.match(entry, '^(%d+) ')
    if live and tonumber(live) >= now then waiting = waiting + 1 end
  end
end
return { holder, redis.call('pttl', KEYS[1]), waiting }

-- A scope's places: a sorted set of records by the ms in which the place ends, and a hash of the bytes they keep, with their sum in t.
local function sum() return tonumber(redis.call('hget', KEYS[2], 't') or 0) end

local function set_bytes(record, bytes)
  local total = sum() - tonumber(redis.call('hget', KEYS[2], record) or 0) + bytes
  if bytes == 0 then redis.call('hdel', KEYS[2], record) else redis.call('hset', KEYS[2], record, digits(bytes)) end
  redis.call('hset', KEYS[2], 't', digits(math.max(0, total)))
end

local function give_back(record)
  redis.call('zrem', KEYS[1], record)
  set_bytes(record, 0)
end

-- Neither goes before the last place ends.
local function keep(life)
  for i = 1, 2 do
    if redis.call('pttl', KEYS[i]) < life then redis.call('pexpire', KEYS[i], digits(life)) end
  end
end

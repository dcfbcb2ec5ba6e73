-- WAIT_HOLDERS
-- KEYS lock, shares, waits beside the lock          Gives the entries of those that hold the lock now.
local entries = redis.call('hvals', KEYS[3])
if not entries[1] then return entries end
local now = now_ms()
local holder = redis.pcall('get', KEYS[1])
if type(holder) ~= 'string' then holder = '' end
local found = {}
for _, entry in ipairs(entries) do
  local live, owner = string.match(entry, '^%S+ (%d+) %d+ (%x+) ')
  if live and tonumber(live) > now
    and (string.sub(holder, 1, 32) == owner or tonumber(redis.call('zscore', KEYS[2], owner) or 0) > now) then
    found[#found + 1] = entry
  end
end
return found

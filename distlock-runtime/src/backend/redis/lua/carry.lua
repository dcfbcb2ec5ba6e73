-- The last token that was drawn: what a reader carries, at least that of the writer before and less than that of the next.
local function carry(counter)
  local last = redis.pcall('get', counter)
  if type(last) == 'table' then return last end
  last = tonumber(last or 0)
  if last and last >= 1e15 and last <= 9e15 then return last end
  -- Missing, small, or broken: drawing one mends it, or says why not.
  return draw(counter)
end

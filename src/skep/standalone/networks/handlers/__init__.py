"""Operations that no table of resources gives."""

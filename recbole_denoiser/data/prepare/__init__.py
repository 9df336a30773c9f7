"""Raw public files to RecBole's atomic files."""

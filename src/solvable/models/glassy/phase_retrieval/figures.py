"""x"""
RECIPES = {}
